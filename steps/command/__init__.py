"""What all steps share: arguments, signals, log, status, exit codes."""
