"""The protocol of SandboxFusion, which trainers of reinforcement learning use to judge code."""
