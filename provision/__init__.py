"""A cluster's life on AWS. Knows nothing of runs.

The modules next to the rooms are each the way of one command: `up`, `down`, `status`, `drift`,
`gc`, `healing` (`heal`), `lease` (`extend`) and `access` (`grant`, `revoke`).
"""
