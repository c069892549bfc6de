"""What every step shares: arguments, signals, log, status, exit codes."""
