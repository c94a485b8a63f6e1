"""The highest load at which a condition still holds, by bisection."""
