"""Tables: instance types with their prices, and AWS's error codes with their remedies."""
