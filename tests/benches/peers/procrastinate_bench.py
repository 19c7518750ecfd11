"""procrastinate: jobs added with defer_async, run by asyncio workers, counted once their status is succeeded."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import platform
import re
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import procrastinate
import psycopg
import psycopg_pool

TASK = "nothing"
# A run without any completion for this long has failed.
STALL_SECONDS = 60
# Connections of the producers, as many as in the other scripts.
PRODUCER_CONNECTIONS = 16

# Settings by mode: how many workers share the slots, the fallback poll, and whose pool it is.
MODES: dict[str, dict[str, Any]] = {
    # As it comes, with one worker of all slots.
    "default": {"app_workers": 1, "own_pool": False},
    # A pool of ours, as the documentation allows. Each statement of procrastinate is a transaction by itself, so
    # autocommit saves the BEGIN and COMMIT around it, and no query tests a connection before each use. The fallback
    # poll is short because a notification that arrives during a fetch is lost.
    "tuned": {"app_workers": 1, "own_pool": True, "fetch_job_polling_interval": 0.05},
    # The same with two workers in the process: one of them fetches one job at a time.
    "tuned-workers": {"app_workers": 2, "own_pool": True, "fetch_job_polling_interval": 0.05},
}


class Cycle:
    """Jobs going round: 2 * workers of them are always between their add and their completion.

    The owner tells `completed` as soon as a completion is committed. First a tenth of `jobs` warms up and `tidy` runs.
    From then on the clock runs, until `jobs` more have completed. The producers never pause and go on until the last
    counted completion, so neither a cold start nor an emptying queue is within the measured time.
    """

    def __init__(
        self,
        workers: int,
        jobs: int,
        add: Callable[[], Awaitable[int]],
        tidy: Callable[[], Awaitable[None]],
        visible: Callable[[int], Awaitable[bool]],
    ) -> None:
        self.workers = workers
        self.jobs = jobs
        self.warmup = math.ceil(jobs / 10)
        self.add = add
        self.tidy = tidy
        # For testing: it costs time.
        self.visible = visible if os.environ.get("PEERS_CHECK") else None
        self.pending: dict[int, tuple[float, asyncio.Future[None]]] = {}
        self.early: dict[int, float] = {}
        self.latencies: list[float] = []
        self.seen = 0
        self.added = 0
        self.started: float | None = None
        self.ended = 0.0
        self.last_seen = 0.0
        self.background: list[asyncio.Task[None]] = []

    def completed(self, job: int) -> None:
        now = time.perf_counter()
        if self.visible:
            self.background.append(asyncio.create_task(self.check(job)))
        waiting = self.pending.pop(job, None)
        if waiting is None:
            # The worker was faster than the answer to the add.
            self.early[job] = now
            return
        since, future = waiting
        self.count(now, since)
        future.set_result(None)

    async def check(self, job: int) -> None:
        assert self.visible
        if not await self.visible(job):
            raise RuntimeError(f"the completion of {job} was told before it was visible")

    def count(self, now: float, since: float) -> None:
        self.last_seen = now
        self.seen += 1
        if self.seen == self.warmup:
            self.background.append(asyncio.create_task(self.start_clock()))
        if self.started is not None and self.started <= now and len(self.latencies) < self.jobs:
            self.latencies.append(now - since)
            self.ended = now

    async def start_clock(self) -> None:
        await self.tidy()
        self.started = time.perf_counter()

    async def produce(self) -> None:
        loop = asyncio.get_running_loop()
        while len(self.latencies) < self.jobs:
            since = time.perf_counter()
            job = await self.add()
            self.added += 1
            early = self.early.pop(job, None)
            if early is not None:
                self.count(early, since)
            else:
                future = loop.create_future()
                self.pending[job] = (since, future)
                await future

    async def watch(self, owners: list[asyncio.Task[None]]) -> None:
        """Fails where the workers end or nothing moves."""
        while True:
            await asyncio.sleep(1)
            for task in [*owners, *self.background]:
                if task.done() and (task in owners or task.exception()):
                    raise RuntimeError("a task of the bench ended too early") from task.exception()
            if time.perf_counter() - self.last_seen > STALL_SECONDS:
                raise RuntimeError(f"nothing completed for {STALL_SECONDS} s, after {self.seen} jobs")

    async def run(self, owners: list[asyncio.Task[None]]) -> dict[str, float]:
        self.last_seen = time.perf_counter()
        watch = asyncio.create_task(self.watch(owners))
        producers = asyncio.gather(*(self.produce() for _ in range(2 * self.workers)))
        try:
            await asyncio.wait([watch, producers], return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                await watch
            await producers
            await asyncio.gather(*self.background)
        finally:
            watch.cancel()
            producers.cancel()
        if self.early:
            raise RuntimeError("jobs completed that nobody added, or twice")
        assert self.started is not None
        seconds = self.ended - self.started
        latencies = sorted(self.latencies)

        def percentile(part: float) -> float:
            return round(1000 * latencies[max(math.ceil(len(latencies) * part) - 1, 0)], 3)

        return {
            "seconds": round(seconds, 3),
            "jobs_per_second": round(len(latencies) / seconds, 1),
            "p50_ms": percentile(0.5),
            "p99_ms": percentile(0.99),
        }


def make_app(url: str, schema: str, size: int, own_pool: bool) -> tuple[procrastinate.App, Any]:
    """An app on a schema, and the pool to open it with, where that is ours."""
    kwargs = {"options": f"-c search_path={schema}"}
    if not own_pool:
        connector = procrastinate.PsycopgConnector(conninfo=url, kwargs=kwargs, min_size=1, max_size=size)
        return procrastinate.App(connector=connector), None

    async def autocommit(connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.set_autocommit(True)

    pool = psycopg_pool.AsyncConnectionPool(
        url, kwargs=kwargs, configure=autocommit, min_size=1, max_size=size, open=False
    )
    return procrastinate.App(connector=procrastinate.PsycopgConnector()), pool


async def measure(
    url: str, reader: psycopg.AsyncConnection[Any], workers: int, jobs: int, mode: str, schema: str
) -> tuple[dict[str, float], dict[str, Any]]:
    settings = dict(MODES[mode])
    own_pool = settings.pop("own_pool")
    app_workers = min(settings.pop("app_workers"), workers)
    concurrency = workers // app_workers
    # A slot needs a connection when its job ends, a worker one more to fetch.
    size = workers + app_workers + 1
    app, pool = make_app(url, schema, size, own_pool)
    producer_app, producer_pool = make_app(url, schema, min(2 * workers, PRODUCER_CONNECTIONS), own_pool)

    @app.task(name=TASK)
    async def nothing() -> None:
        pass

    # finish_job returns once its transaction is over. The package has no event for that.
    finish_job = app.job_manager.finish_job

    async def finish_and_tell(job: Any, *args: Any, **kwargs: Any) -> None:
        await finish_job(job, *args, **kwargs)
        cycle.completed(job.id)

    app.job_manager.finish_job = finish_and_tell  # type: ignore[method-assign]

    async def tidy() -> None:
        # As a server that has been in use for a while has done by itself.
        cursor = await reader.execute(
            "SELECT string_agg(oid::regclass::text, ', ') FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'",
            [schema],
        )
        row = await cursor.fetchone()
        await reader.execute(f"VACUUM (ANALYZE) {row[0]}")

    async def statuses(only: int | None) -> dict[str, int]:
        where = "" if only is None else "WHERE id = %s"
        cursor = await reader.execute(
            f"SELECT status::text, count(*) FROM {schema}.procrastinate_jobs {where} GROUP BY status",
            None if only is None else [only],
        )
        return dict(await cursor.fetchall())

    async def visible(job: int) -> bool:
        return await statuses(job) == {"succeeded": 1}

    async with app.open_async(pool), producer_app.open_async(producer_pool):
        for opened in (pool, producer_pool):
            if opened:
                await opened.open(wait=True)
        await app.schema_manager.apply_schema_async()
        deferrer = producer_app.configure_task(TASK)
        cycle = Cycle(workers, jobs, deferrer.defer_async, tidy, visible)
        running = [
            asyncio.create_task(
                app.run_worker_async(concurrency=concurrency, listen_notify=True, install_signal_handlers=False, **settings)
            )
            for _ in range(app_workers)
        ]
        try:
            figures = await cycle.run(running)
            found = await statuses(None)
            if found != {"succeeded": cycle.added}:
                raise RuntimeError(f"{cycle.added} jobs added, but found: {found}")
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for opened in (pool, producer_pool):
                if opened:
                    await opened.close()
    return figures, {
        "app_workers": app_workers,
        "concurrency": concurrency,
        "listen_notify": True,
        "pool_max_size": size,
        "autocommit": own_pool,
        **settings,
    }


async def body(url: str, workers: int, jobs: int, modes: list[str]) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as reader:
        for name in ("synchronous_commit", "fsync"):
            value = (await (await reader.execute(f"SHOW {name}")).fetchone())[0]
            if value != "on":
                sys.exit(f"{name} is {value}: figures would not be comparable; set it to on")
        best: tuple[str, dict[str, float], dict[str, Any]] | None = None
        rates = {}
        for mode in modes:
            schema = f"bench_{mode.replace('-', '_')}"
            # Fails where it exists: the database is to be a fresh one.
            await reader.execute(f"CREATE SCHEMA {schema}")
            figures, options = await measure(url, reader, workers, jobs, mode, schema)
            # Its rows are nothing for the autovacuum to work on during the next mode.
            await reader.execute(f"DROP SCHEMA {schema} CASCADE")
            print(f"procrastinate {mode}: {json.dumps(figures)}", file=sys.stderr)
            rates[mode] = figures["jobs_per_second"]
            if best is None or rates[mode] > best[1]["jobs_per_second"]:
                best = (mode, figures, options)
    mode, figures, options = best
    options = {"mode": mode, **options, "in_flight": 2 * workers, "python": platform.python_version()}
    options["psycopg"] = f"{psycopg.__version__} ({psycopg.pq.__impl__})"
    if len(modes) > 1:
        options["jobs_per_second_by_mode"] = rates
    line = {"peer": "procrastinate", "version": version("procrastinate"), "workers": workers, "jobs": jobs, **figures}
    print(json.dumps({**line, "options": options}, separators=(",", ":")))


def main() -> None:
    arguments = sys.argv[1:]
    usage = f"usage: {sys.argv[0]} POSTGRESQL_URL WORKERS JOBS [{'|'.join(MODES)}]"
    if len(arguments) not in (3, 4) or not re.match(r"postgres(ql)?://", arguments[0]):
        sys.exit(usage)
    if not all(re.fullmatch(r"[1-9]\d*", text) for text in arguments[1:3]):
        sys.exit(f"WORKERS and JOBS must be whole numbers above 0\n{usage}")
    modes = arguments[3:] or list(MODES)
    if arguments[1] == "1":
        # One slot cannot be shared by two workers.
        modes = [mode for mode in modes if mode != "tuned-workers"] or ["tuned"]
    if not set(modes) <= set(MODES):
        sys.exit(f"no mode {modes[0]}\n{usage}")
    # It only warns that an app of the main module cannot be found by its own command line.
    logging.getLogger("procrastinate.blueprints").setLevel(logging.ERROR)
    asyncio.run(body(arguments[0], int(arguments[1]), int(arguments[2]), modes))


if __name__ == "__main__":
    main()
