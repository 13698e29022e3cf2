"""One file per algorithm; `table.AGENTS` is the plain table of those that a spec can name."""
