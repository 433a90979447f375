"""The Model Context Protocol: sessions as tools and resources, over stdio and HTTP."""
