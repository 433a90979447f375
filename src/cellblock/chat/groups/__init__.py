"""Group chats: who speaks next, transitions, and the manager."""
