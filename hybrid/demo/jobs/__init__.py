"""Example jobs: plain programs that keep the job contract."""
