"""What each command does, without printing: typed values in and out, progress by callbacks."""
