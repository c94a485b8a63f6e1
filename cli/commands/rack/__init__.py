"""Commands that serve a rack or send requests to one."""
