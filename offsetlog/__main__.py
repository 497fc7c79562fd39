"""The command line, as ``offsetlog`` and as ``python -m offsetlog``. Nothing is imported before
Ctrl-C is looked for, and importing takes longer than most commands."""


def main() -> int:
    try:
        from offsetlog.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
