"""`python -m services.scheduler`: one instance of the scheduler."""

from services.scheduler.service import service
from shared.runtime.run import main

if __name__ == "__main__":
    main(lambda settings: service())
