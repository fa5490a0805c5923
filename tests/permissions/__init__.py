"""Commands under policies that lack one action: the refusal names it."""
