"""REST: the FastAPI application, its routers, schemas, authentication and errors."""
