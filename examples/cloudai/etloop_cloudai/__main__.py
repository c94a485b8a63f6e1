"""CloudAI's command line with the workload "Etloop": `python -m etloop_cloudai run --system-config ... --test-scenario ...`."""

from cloudai.cli import main

from etloop_cloudai.workload import register

if __name__ == "__main__":
    register()
    main()
