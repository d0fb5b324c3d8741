"""`python -m services.routes`: run one instance."""

from services.routes.service import service
from services.routes.snapshot_writer import write_snapshots
from shared.runtime.run import main

if __name__ == "__main__":
    main(lambda settings: service(settings.cluster_domain), alongside=(write_snapshots,))
