"""The images that the lab's machines boot: built once and cached."""
