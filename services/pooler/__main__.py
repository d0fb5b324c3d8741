"""`python -m services.pooler`: one instance of the pooler."""

from services.pooler.service import service
from shared.runtime.run import main

if __name__ == "__main__":
    main(lambda settings: service())
