"""Files that production tools leave behind, one reader per format."""
