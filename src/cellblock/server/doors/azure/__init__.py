"""The protocol of Azure Container Apps dynamic sessions, in both dialects."""
