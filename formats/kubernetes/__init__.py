"""What the formats of Kubernetes manifests share: pods, containers, placeholders, schemas."""
