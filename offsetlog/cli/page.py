"""``offsetlog page``: the log in a browser."""

from __future__ import annotations

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_json, print_line
from offsetlog.cli.params import Whole
from offsetlog.cli.session import CliSession, pass_session
from offsetlog.errors import InvalidRequestError


@click.command(
    "page",
    cls=Command,
    examples="""
    $ offsetlog page
    $ offsetlog page --port 8901 --allow-changes
    $ offsetlog page --host 0.0.0.0 --allowed-host logs.example.org --base-path /orders
    """,
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="HOST",
    help="The address to listen on. Off loopback every request needs the token.",
)  # fmt: skip
@click.option(
    "--port", type=Whole(0), default=8900, show_default=True, help="The port; 0 takes a free one."
)
@click.option(
    "--allow-changes", is_flag=True,
    help="Let who has the token reset groups and start upkeep. Without it the page only reads.",
)  # fmt: skip
@click.option(
    "--allowed-host", "allowed_hosts", multiple=True, metavar="HOST",
    help="Another name that the page is reached by, such as a proxy's; repeatable.",
)  # fmt: skip
@click.option(
    "--base-path", default="", metavar="PATH",
    help="Below which path a proxy shows the page, such as /orders.",
)  # fmt: skip
@pass_session
def command(
    session: CliSession,
    host: str,
    port: int,
    allow_changes: bool,
    allowed_hosts: tuple[str, ...],
    base_path: str,
) -> None:
    """Show the log in a browser, until Ctrl-C.

    Topics and their records, groups with their lag and its curve, a group's reset as a picture of
    before and after, verification and upkeep. It only reads, unless --allow-changes is given. The
    same is there as JSON under /api.

    It needs two packages: pip install starlette uvicorn
    """
    if port > 65535:
        raise InvalidRequestError(f"There is no port {port}.", "They end at 65535.")
    try:
        from offsetlog.page.server import PageServer
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "anyio", "h11"):
            raise
        raise InvalidRequestError(
            f"The page needs {error.name}, which is not installed.",
            "Install it with: pip install starlette uvicorn",
        ) from None
    with session.open() as log:
        server = PageServer(
            log, host=host, port=port, allow_changes=allow_changes, allowed_hosts=allowed_hosts,
            base_path=base_path,
        )  # fmt: skip
        if session.json:
            print_json({"url": server.url, "sign_in_url": server.sign_in_url})
        else:
            print_line(f"The page of {log.url}: {server.sign_in_url}")
            if server.needs_token:
                print_line("The address has the token: who has it may do what the page can do.")
            print_line("Ctrl-C ends it.", stderr=True)
        server.serve()
