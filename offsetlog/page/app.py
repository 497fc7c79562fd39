"""The page's requests: which there are, and what each answers.

Invariants:

1. Every request passes ``Guard`` first, and every failure ends in ``failed``.
2. Fields are named as in the command line's ``--json``; more of them may come.
3. Every answer is bounded, and so is every wait. What reads records runs ``MAX_READING`` at a
   time, and nothing that a client sent is parsed, nor anything that was read made JSON of, in the
   event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from offsetlog import __version__
from offsetlog.client.log import Log
from offsetlog.client.notebook_html import GroupInfo
from offsetlog.client.overview import Overview
from offsetlog.core.group.lag import Lag, total
from offsetlog.errors import InvalidRequestError
from offsetlog.logs import get_logger
from offsetlog.metrics import CONTENT_TYPE, Metrics
from offsetlog.metrics.exposition import to_text
from offsetlog.metrics.families import of_log, of_queries
from offsetlog.page import chain_view, records, requests, resets
from offsetlog.page.access import Access
from offsetlog.page.changes import Changes
from offsetlog.page.guard import AsgiApp, Guard
from offsetlog.page.jobs import KINDS, Jobs
from offsetlog.page.looks import Look, Looks
from offsetlog.page.responses import ClientError, StaticFile, as_json, failed, refused

MAX_READING = 2
"""Requests that read stored files at once: each may take hundreds of megabytes for a while."""
BUSY_SECONDS = 20.0
"""After which one that waits for its turn is told to come again."""
MAX_PARSED = 2
"""Bodies that are parsed and judged at once."""
MAX_WAITING = 16
"""Requests that wait for records at once; of more, each is answered at once."""
LOCAL_POLL_SECONDS = 0.2
REMOTE_POLL_SECONDS = 2.0
KINDS_OF_FILES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
T = TypeVar("T")
logger = get_logger(__name__)


class Page:
    """One log's page: an ASGI application, and what it keeps."""

    def __init__(
        self, log: Log, access: Access, *, base_path: str = "", metrics: Metrics | None = None
    ) -> None:
        self.log = log
        self._metrics = metrics
        self.access = access
        self.changes = Changes()
        self.looks = Looks(log, self.changes)
        self.jobs = Jobs(log, self.changes, self.looks.expire)
        self._waiting = 0
        self._reading = asyncio.Semaphore(MAX_READING)
        self._parsing = asyncio.Semaphore(MAX_PARSED)
        self._files = StaticFile.all(KINDS_OF_FILES)
        routes = [
            Route("/", self._answer(self._index), methods=["GET"]),
            Route("/api/state", self._answer(self._state), methods=["GET"]),
            Route("/api/topics", self._answer(self._topics), methods=["GET"]),
            Route("/api/topics/{topic}", self._answer(self._topic), methods=["GET"]),
            Route(
                "/api/topics/{topic}/records", self._answer_async(self._records), methods=["GET"]
            ),
            Route(
                "/api/topics/{topic}/entries", self._answer_async(self._entries), methods=["GET"]
            ),
            Route(
                "/api/topics/{topic}/files",
                self._answer_async(self._topic_files),
                methods=["GET"],
            ),
            Route("/api/groups", self._answer(self._groups), methods=["GET"]),
            Route("/api/groups/{group}", self._answer_async(self._group), methods=["GET"]),
            Route("/api/groups/{group}/reset", self._answer_async(self._reset), methods=["POST"]),
            Route("/api/queries", self._answer(self._queries), methods=["GET"]),
            Route("/api/changes", self._answer(self._changes_made), methods=["GET"]),
            Route("/api/jobs", self._answer(self._list_jobs), methods=["GET"]),
            Route("/api/jobs", self._answer_async(self._start_job), methods=["POST"]),
            Route("/api/jobs/{job}/end", self._answer_async(self._end_job), methods=["POST"]),
            Route("/metrics", self._answer(self._scrape), methods=["GET"]),
            *(
                Route(f"/{name}", self._answer(self._static(name)), methods=["GET"])
                for name in self._files
                if name != "index.html"
            ),
        ]
        inner = Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_allowed})
        inner.router.redirect_slashes = False
        self.app: AsgiApp = Guard(inner, access, base_path)

    def close(self) -> None:
        """End what runs; the log stays open."""
        self.jobs.close()

    # --- answering -------------------------------------------------------------------------

    def _answer(self, make: Callable[[Request], Response]) -> Callable[[Request], Any]:
        """In a thread of the server's pool."""

        def endpoint(request: Request) -> Response:
            try:
                return make(request)
            except Exception as error:  # noqa: BLE001 - the edge: nothing may end as a trace
                return failed(error)

        return endpoint

    def _answer_async(
        self, make: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            try:
                return await make(request)
            except Exception as error:  # noqa: BLE001 - the edge: nothing may end as a trace
                return failed(error)

        return endpoint

    async def _read(self, work: Callable[..., T], *given: Any) -> T:
        """In a thread, once it is its turn."""
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._reading.acquire()
        except TimeoutError:
            raise ClientError(503, "Others are reading here. Try again in a while.") from None
        try:
            return await run_in_threadpool(work, *given)
        finally:
            self._reading.release()

    async def _sent(self, request: Request, parse: Callable[[dict[str, Any]], T]) -> T:
        """What was sent, parsed and judged in a thread."""
        data = await requests.body(request)

        def judge() -> T:
            return parse(requests.json_object(data))

        async with self._parsing:
            return await run_in_threadpool(judge)

    def _static(self, name: str) -> Callable[[Request], Response]:
        return lambda request: self._files[name].response(request)

    def _index(self, request: Request) -> Response:
        return self._files["index.html"].response(request)

    # --- topics ----------------------------------------------------------------------------

    def _state(self, request: Request) -> Response:
        """What the page itself needs to know; nothing is asked of the storage but the root once."""
        requests.parameters(request)
        return as_json(
            {
                "url": self.log.url,
                "root_id": self.log.root_id,
                "version": __version__,
                "allow_changes": self.access.allow_changes,
                "has_token": bool(request.scope["offsetlog.has_token"]),
                "may_verify": self.access.check_verification(
                    bool(request.scope["offsetlog.has_token"])
                )
                is None,
                "pause_ms": round(self.looks.pause * 1000),
                "now": self.log.env.now_ms(),
            }
        )

    def _topics(self, request: Request) -> Response:
        requests.parameters(request)
        look = self.looks.newest()
        rates = self.looks.rates()
        groups = groups_by_topic(look.seen)
        return self._looked(
            look,
            [
                {
                    "name": topic.name,
                    "partitions": len(topic.partitions),
                    "records": topic.records,
                    "bytes": sum(partition.bytes for partition in topic.partitions),
                    "records_per_second": rates.get(topic.name),
                    "groups": groups.get(topic.name, []),
                }
                for topic in look.seen.topics
            ]
            + [
                {"name": folder, "error": str(error)}
                for folder, error in sorted(look.seen.unreadable.items())
            ],
        )

    def _topic(self, request: Request) -> Response:
        requests.parameters(request)
        name = request.path_params["topic"]
        look = self.looks.newest()
        info = self.log.topic(name).describe()
        opened = self.log.open_topic(name)
        return self._looked(
            look,
            {
                **info.to_dict(),
                "records": info.records,
                "bytes": sum(partition.bytes for partition in info.partitions),
                "records_per_second": self.looks.rates().get(name),
                "groups": groups_by_topic(look.seen).get(name, []),
                "folder": f"{self.log.url}/{opened.chain.folder}",
                "is_local": self.log.store.is_local,
            },
        )

    async def _records(self, request: Request) -> Response:
        given = requests.parameters(
            request, "partition", "offset", "timestamp", "key", "key_base64", "contains", "order",
            "cursor", "limit", "wait", "whole",
        )  # fmt: skip
        query = requests.record_query(given)
        wait = requests.seconds_of(given.get("wait"))
        if wait and query.backwards:
            raise InvalidRequestError(
                "New records are not waited for from the newest on.", "Add order=oldest."
            )
        whole = requests.flag("whole", given.get("whole"))
        if whole and query.limit != 1:
            raise InvalidRequestError("Only one record is shown whole.", "Add limit=1.")
        opened = await run_in_threadpool(self.log.open_topic, request.path_params["topic"])
        page = await self._read(records.read_page, opened, query, self.log.env)
        if wait and not page.records and page.complete:
            page = await self._wait(request, opened, query, page, wait)

        def answer() -> Response:
            return as_json(
                {
                    "records": records.to_documents(page, whole),
                    "cursor": requests.format_cursor(page.cursor),
                    "ends": requests.format_cursor(page.ends),
                    "scanned": page.scanned,
                    "complete": page.complete,
                }
            )

        return await run_in_threadpool(answer)

    async def _wait(
        self, request: Request, opened: Any, query: records.Query, page: Any, seconds: float
    ) -> Any:
        """Until there is a record, the time is over, or the browser left."""
        pause = LOCAL_POLL_SECONDS if self.log.store.is_local else REMOTE_POLL_SECONDS
        until = self.log.env.monotonic() + seconds
        if self._waiting >= MAX_WAITING:
            return page
        self._waiting += 1
        try:
            while not page.records and page.complete and self.log.env.monotonic() < until:
                await asyncio.sleep(pause)
                if await request.is_disconnected():
                    break
                page = await self._read(records.read_page, opened, query, self.log.env)
            return page
        finally:
            self._waiting -= 1

    async def _entries(self, request: Request) -> Response:
        given = requests.parameters(request, "before", "limit")
        before, limit = (
            requests.whole("before", given.get("before")),
            requests.limit_of(given, chain_view.MAX_ENTRIES),
        )

        def read() -> Response:
            opened = self.log.open_topic(request.path_params["topic"])
            return as_json(chain_view.entries(opened, before, limit))

        return await self._read(read)

    async def _topic_files(self, request: Request) -> Response:
        given = requests.parameters(request, "partition", "before", "limit")
        partition = requests.whole("partition", given.get("partition")) or 0
        before, limit = (
            requests.whole("before", given.get("before")),
            requests.limit_of(given, chain_view.MAX_FILES),
        )

        def read() -> Response:
            opened = self.log.open_topic(request.path_params["topic"])
            return as_json(chain_view.segment_files(opened, partition, before, limit))

        return await self._read(read)

    # --- groups ----------------------------------------------------------------------------

    def _groups(self, request: Request) -> Response:
        requests.parameters(request)
        look = self.looks.newest()
        return self._looked(look, [group_summary(group) for group in look.seen.groups])

    async def _group(self, request: Request) -> Response:
        requests.parameters(request)

        def read() -> Response:
            group = self.log.group(request.path_params["group"])
            try:
                return as_json(group.describe().to_dict(), at=self.log.env.now_ms())
            except InvalidRequestError as error:
                raise ClientError(404, str(error)) from None

        return await self._read(read)

    def _queries(self, request: Request) -> Response:
        """The Spark queries whose listener reports here, as of their last batches."""
        requests.parameters(request)
        reports = [] if self._metrics is None else self._metrics.reports.values()
        return as_json(
            [
                {
                    "query": report.query,
                    "batch": report.batch_id,
                    "at": report.at,
                    "groups": report.groups,
                    "total": report.lag.total._asdict(),
                    "partitions": [line._asdict() for line in report.lines],
                }
                for report in reports
            ]
        )

    async def _reset(self, request: Request) -> Response:
        order = await self._sent(request, resets.parse)
        if not order.dry_run:
            self._check_change(request)
        group = request.path_params["group"]
        plan = await self._read(resets.carry_out, self.log, group, order)
        if plan.executed:
            self.looks.expire()
            change = resets.as_change(plan, order, self.log.env.now_ms())
            self.changes.add(change)
            logger.info("group %s was reset from the page: %s", group, change.text)
        document = {**plan.to_dict(), "warnings": plan.warnings}
        return await run_in_threadpool(as_json, document)

    # --- upkeep ----------------------------------------------------------------------------

    def _changes_made(self, request: Request) -> Response:
        requests.parameters(request)
        look = self.looks.newest()
        return self._looked(look, [change._asdict() for change in self.changes.newest_first()])

    def _list_jobs(self, request: Request) -> Response:
        requests.parameters(request)
        return as_json([job.to_dict() for job in self.jobs.newest_first()])

    async def _start_job(self, request: Request) -> Response:
        kind, topic = await self._sent(request, _job_in)
        self._check_job(request, kind)
        job = await run_in_threadpool(self.jobs.start, kind, topic)
        return as_json(job.to_dict(), status=202)

    async def _end_job(self, request: Request) -> Response:
        await self._sent(request, lambda given: None)
        number = request.path_params["job"]
        job = self.jobs.get(int(number)) if number.isdecimal() and len(number) < 10 else None
        if job is None:
            raise ClientError(404, "There is no such job.")
        self._check_job(request, job.kind)
        job.is_ended = True
        return as_json(job.to_dict())

    def _scrape(self, request: Request) -> Response:
        """For Prometheus: the look that all share, and the Spark queries that report here."""
        samples = of_log(self.looks.newest().seen, self.log.last_maintained_ms())
        if self._metrics is not None:
            samples = {**samples, **of_queries(self._metrics.reports.values())}
        headers = {"cache-control": "no-store", "content-type": CONTENT_TYPE}
        return Response(to_text(samples), 200, headers)

    def _check_job(self, request: Request, kind: str) -> None:
        if kind == "maintain":
            self._check_change(request)
            return
        refusal = self.access.check_verification(bool(request.scope["offsetlog.has_token"]))
        if refusal is not None:
            raise ClientError(refusal.status, refusal.text)

    def _check_change(self, request: Request) -> None:
        refusal = self.access.check_change(bool(request.scope["offsetlog.has_token"]))
        if refusal is not None:
            raise ClientError(refusal.status, refusal.text)

    def _looked(self, look: Look, document: object) -> Response:
        return as_json(document, at=look.at, pause=self.looks.pause)


# --- documents ---------------------------------------------------------------------------------


def group_summary(group: GroupInfo) -> dict[str, object]:
    return {
        "name": group.name,
        "state": group.state,
        "members": len(group.members),
        "partitions": len(group.partitions),
        "uncommitted": sum(line.committed is None for line in group.partitions),
        "topics": sorted({line.topic for line in group.partitions}),
        **group.total._asdict(),
        "resets": group.resets,
    }


def groups_by_topic(look: Overview) -> dict[str, list[dict[str, object]]]:
    """The groups that read each topic, and how far each is behind there."""
    out: dict[str, list[dict[str, object]]] = {}
    for group in look.groups:
        lines: dict[str, list[Lag]] = {}
        for line in group.partitions:
            lines.setdefault(line.topic, []).append(line)
        for topic, its_lines in lines.items():
            out.setdefault(topic, []).append(
                {
                    "group": group.name,
                    "state": group.state,
                    "uncommitted": sum(line.committed is None for line in its_lines),
                    "records": total(its_lines).records,
                }
            )
    return out


def _job_in(given: dict[str, Any]) -> tuple[str, str | None]:
    kind, topic = given.pop("kind", None), given.pop("topic", None)
    if kind not in KINDS or given or not (topic is None or isinstance(topic, str)):
        raise InvalidRequestError(
            "This is no job.", 'Send {"kind": "verify" or "maintain", "topic": NAME or null}.'
        )
    return kind, topic


def _not_found(request: Request, error: Exception) -> Response:
    return refused(404, "There is nothing at this address.")


def _not_allowed(request: Request, error: Exception) -> Response:
    return refused(405, "This address takes no such request.")
