"""A worker for Signalbox in Python: says hello, claims, redeems, sends, reports, renews, drains, says bye.

A handler is one coroutine: it gets a `Job`, validates, calls `await job.redeem()` as the last step before bytes leave, and returns
an `Ending`. Nothing may be sent without that call, and with it only once.
"""

import asyncio
import logging
import random
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgpack
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, SealedBox

from link import PATIENCE, Link, Refused, Unanswered

log = logging.getLogger("worker")

MOST_INLINE = 640 * 1024
MOST_PIECE = 256 * 1024
REPORT_FOR = 600.0
"""Seconds for which an ending is reported again while nobody answers."""
CLAIMS = 4
"""Claims that wait at once: more would only race each other."""


@dataclass
class Ending:
    """What became of a job: an outcome of the protocol with its fields. `released` gives it back unsent."""

    outcome: str
    code: str | None = None
    result: str | None = None
    usage: dict | None = None
    detail: str | None = None
    upstream_status: int | None = None
    retryable: bool = False
    retry_after_seconds: int | None = None


class NotRedeemed(Exception):
    """The token was not redeemed: nothing may be sent."""


class Unreadable(Exception):
    """A credential was not sealed for this start."""


@dataclass
class Job:
    """A leased task."""

    link: Link
    assignment: dict
    secret: PrivateKey
    fence: float
    renewed: float
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    redeemed: bool = False
    deltas: int = 0
    _credential: dict | None = None

    @property
    def lease(self) -> dict:
        """Names the lease in everything that is said of it."""
        return {name: self.assignment[name] for name in ("account", "task", "epoch")}

    @property
    def fenced(self) -> bool:
        """Whether the lease may be another's by now, as far as this clock knows."""
        return time.monotonic() - self.renewed >= self.fence

    async def payload(self) -> str:
        """The whole payload. Before `redeem`: what cannot be read is not sent."""
        if self.assignment["payload"] is not None:
            return self.assignment["payload"]
        pieces, offset = [], 0
        while offset is not None:
            piece = await self.link.insist("fetch", {"lease": self.lease, "offset": offset}, self.fence)
            pieces.append(piece["text"])
            offset = piece["next"]
        return "".join(pieces)

    async def redeem(self) -> None:
        """The commit point. A lost answer is asked for again with the same nonce, and never by another start."""
        if self.redeemed:
            raise NotRedeemed("redeemed before")
        nonce = uuid.uuid5(uuid.UUID(self.link.incarnation), f"{self.assignment['task']} {self.assignment['epoch']}")
        body = {"lease": self.lease, "token": self.assignment["token"], "nonce": str(nonce)}
        pause = 0.02
        while not self.fenced:
            try:
                self._credential = (await self.link.ask("redeem", body)).get("credential")
                self.redeemed = True
                break
            except Refused as refusal:
                raise NotRedeemed(refusal.code) from refusal
            except Unanswered:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
        # The answer may have taken its time.
        if not self.redeemed or self.fenced:
            raise NotRedeemed("fenced")

    def credential(self) -> tuple[str, str, str] | None:
        """The upstream's credential as header, value and the only origin that it may be sent to. Memory only."""
        if self._credential is None:
            return None
        try:
            value = SealedBox(self.secret).decrypt(bytes.fromhex(self._credential["sealed"])).decode()
        except (CryptoError, ValueError) as error:
            raise Unreadable from error
        return self._credential["header"], value, self._credential["origin"]

    async def delta(self, payload: bytes) -> None:
        """Passes a piece of the answer on to whoever reads along."""
        self.deltas += 1
        await self.link.delta(self.assignment["task"], self.assignment["attempt"], self.deltas, payload)


Handler = Callable[[Job], Awaitable[Ending]]


class Worker:
    """Runs a handler in so many slots."""

    def __init__(self, handler: Handler, kinds: list[str], slots: int) -> None:
        self.handler, self.kinds, self.count = handler, kinds, slots
        self.slots = asyncio.Semaphore(slots)
        self.free = slots
        self.running: dict[str, Job] = {}
        self.jobs: set[asyncio.Task] = set()
        self.draining = asyncio.Event()
        # Set where this start must not go on.
        self.over: asyncio.Future[str] | None = None

    async def run(self, url: str, seed: str, pool: str, worker: str) -> int:
        """Runs until it is told to stop, then ends in order. Answers with the process's exit code."""
        self.over = asyncio.get_running_loop().create_future()
        self.secret = PrivateKey(secrets.token_bytes(32))

        async def closed() -> None:
            self.end("the connection is gone")

        link = self.link = await Link.connect(url, seed, pool, worker, str(uuid.uuid4()), closed)
        # Heard before the hello is answered, so that no order is missed.
        await link.client.subscribe(f"ctl.{pool}.{worker}.control", cb=self.order)
        hello = {
            "protocol": 1,
            "version": "python 1.0",
            "capabilities": {"kinds": self.kinds, "streaming": True},
            "slots": self.count,
            "public_key": self.secret.public_key.encode().hex(),
        }
        self.welcome = await link.insist("hello", hello, 600)
        self.fence = self.welcome["lease_ttl_ms"] / 1000 * 0.7
        renewing = asyncio.create_task(self.renew())
        claiming = [asyncio.create_task(self.claim()) for _ in range(min(CLAIMS, self.count))]
        drained = asyncio.create_task(self.draining.wait())
        await asyncio.wait([drained, self.over], return_when=asyncio.FIRST_COMPLETED)
        for claim in claiming:
            claim.cancel()
        await asyncio.gather(*claiming, return_exceptions=True)
        if not self.over.done():
            while self.jobs:
                await asyncio.wait(self.jobs)
        renewing.cancel()
        drained.cancel()
        if self.over.done():
            log.error("this start is over: %s", self.over.result())
            return 1
        try:
            await link.ask("bye", {})
        except (Refused, Unanswered) as error:
            log.warning("no good-bye: %s", error)
        await link.client.drain()
        return 0

    def end(self, why: str) -> None:
        """This start must not go on."""
        if self.over and not self.over.done() and not self.draining.is_set():
            self.over.set_result(why)

    async def order(self, message) -> None:
        """An order of the service; one for another start is not for this one."""
        said = msgpack.unpackb(message.data, raw=False)
        if str(uuid.UUID(bytes=said["incarnation"])) != self.link.incarnation:
            return
        if said["order"] == "drain":
            self.draining.set()
        elif said.get("task") and (job := self.running.get(str(uuid.UUID(bytes=said["task"])))):
            job.cancelled.set()

    async def renew(self) -> None:
        """One sign of life renews every lease."""
        while True:
            await asyncio.sleep(self.welcome["renew_every_ms"] / 1000 * random.uniform(0.8, 1.2))
            asked = time.monotonic()
            leases = [job.lease for job in self.running.values()]
            try:
                said = await self.link.ask("renew", {"free_slots": self.free, "leases": leases})
            except Refused as refusal:
                self.end(refusal.code)
                return
            except Unanswered as error:
                log.warning("leases were not renewed: %s", error)
            else:
                self.renewed(said, asked)
            for job in self.running.values():
                # Leases that may be another's are not trusted: what was not sent is not sent any more.
                if job.fenced:
                    job.cancelled.set()

    def renewed(self, said: dict, asked: float) -> None:
        """Takes in what the service says of each lease. One that has ended meanwhile is closed, not lost."""
        if said["draining"]:
            self.draining.set()
        for state in said["leases"]:
            job = self.running.get(state["task"])
            if job is None or job.assignment["epoch"] != state["epoch"]:
                continue
            if state["state"] == "live":
                job.renewed = asked
            if state["cancel"] or state["state"] in ("lease_superseded", "task_cancelled"):
                job.cancelled.set()

    async def claim(self) -> None:
        """Claims into free slots, one long request after the other."""
        wait = self.welcome["claim_wait_ms"]
        while True:
            await self.slots.acquire()
            try:
                said = await self.link.ask("claim", {"wait_ms": wait}, wait / 1000 + PATIENCE)
            except BaseException as error:
                self.slots.release()
                if isinstance(error, Unanswered):
                    log.warning("a claim was not answered: %s", error)
                    await asyncio.sleep(1)
                    continue
                if isinstance(error, Refused):
                    self.end(error.code)
                    return
                raise
            if said["draining"]:
                self.draining.set()
            if said["task"] is None:
                self.slots.release()
                continue
            task = asyncio.create_task(self.execute(said["task"]))
            self.jobs.add(task)
            task.add_done_callback(self.jobs.discard)

    async def execute(self, assignment: dict) -> None:
        """Executes one task, and says what became of it."""
        # The lease was granted before its answer came: the longest way back is taken off.
        job = Job(self.link, assignment, self.secret, self.fence, time.monotonic() - PATIENCE)
        self.running[assignment["task"]] = job
        self.free -= 1
        try:
            try:
                ending = await self.handler(job)
            except Exception as error:  # noqa: BLE001 - a handler's mistake must not end the worker
                log.error("task %s: the handler has failed: %s", assignment["task"], type(error).__name__)
                ending = Ending("unknown" if job.redeemed else "released", code="handler_failed")
            await self.tell(job, ending)
            if assignment["streaming"]:
                # The end mark: how it ended, the log says.
                await job.delta(b"")
        finally:
            self.free += 1
            del self.running[assignment["task"]]
            self.slots.release()

    async def tell(self, job: Job, ending: Ending) -> None:
        """Reports until that is answered. What was not redeemed is given back, whatever the handler says."""
        try:
            if not job.redeemed:
                await self.link.insist("release", {"lease": job.lease, "reason": ending.code or ending.outcome}, REPORT_FOR)
                return
            report = {"lease": job.lease, **{name: value for name, value in vars(ending).items() if value is not None}}
            if ending.outcome == "released":
                # It is redeemed, so it cannot be given back; the handler says that nothing was sent.
                report |= {"outcome": "not_sent", "retryable": True}
            if ending.result is not None and len(ending.result.encode()) > MOST_INLINE:
                report["parts"] = await self.store(job, report.pop("result"))
            await self.link.insist("report", report, REPORT_FOR)
        except Refused as refusal:
            # The task was cancelled, or its lease is over: nothing is owed any more.
            log.info("task %s: an ending was refused: %s", job.assignment["task"], refusal)
        except Unanswered as error:
            log.error("task %s: an ending was not taken: %s", job.assignment["task"], error)

    async def store(self, job: Job, result: str) -> int:
        """Hands a large result in, in pieces that never cut a character. Answers with their count."""
        data, begin, part = result.encode(), 0, 0
        while begin < len(data):
            end = min(begin + MOST_PIECE, len(data))
            while end < len(data) and data[end] & 0xC0 == 0x80:
                end -= 1
            piece = {"lease": job.lease, "part": part, "text": data[begin:end].decode()}
            await self.link.insist("store", piece, REPORT_FOR)
            begin, part = end, part + 1
        return part
