print("from the repository")
