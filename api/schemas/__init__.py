"""What the API answers with: a file per resource, each model made from domain values."""
