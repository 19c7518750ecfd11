"""The worker protocol over NATS: requests with the worker's own subjects, answers as values or refusals."""

import asyncio
import json

import nats
import nats.errors

PATIENCE = 5.0
"""Seconds to wait for an answer that is due at once."""


class Refused(Exception):
    """The service says no."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


class Unanswered(Exception):
    """Nobody answered, or the service was busy with itself: whether it was carried out is not known."""


class Link:
    """One connection of one start of one worker."""

    def __init__(self, client: nats.NATS, pool: str, worker: str, incarnation: str) -> None:
        self.client, self.pool, self.worker, self.incarnation = client, pool, worker, incarnation

    @classmethod
    async def connect(cls, url: str, seed: str, pool: str, worker: str, incarnation: str, closed) -> "Link":
        """Connects; `closed` is called when the connection is gone for good."""
        client = await nats.connect(
            url.split(","),
            nkeys_seed_str=seed,
            # The server lets a worker hear answers below its own prefix alone.
            inbox_prefix=f"_INBOX_{worker}".encode(),
            max_reconnect_attempts=-1,
            ping_interval=2,
            closed_cb=closed,
            name=f"worker {worker}",
        )
        return cls(client, pool, worker, incarnation)

    async def ask(self, verb: str, body: dict, patience: float = PATIENCE) -> dict:
        """Asks once. Every request names this start."""
        payload = json.dumps({"incarnation": self.incarnation, **body}).encode()
        subject = f"work.{self.pool}.{self.worker}.{verb}"
        try:
            answer = await self.client.request(subject, payload, timeout=patience, headers={"Content-Type": "application/json"})
        except (nats.errors.Error, asyncio.TimeoutError, OSError) as error:
            raise Unanswered(f"{verb}: {type(error).__name__}") from error
        said = json.loads(answer.data)
        code = (answer.headers or {}).get("Signalbox-Error")
        if code == "unavailable":
            raise Unanswered(f"{verb}: {code}")
        if code:
            raise Refused(code, said.get("detail", ""))
        return said

    async def insist(self, verb: str, body: dict, seconds: float) -> dict:
        """Asks until there is an answer, or the time is over."""
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + seconds, 0.05
        while True:
            try:
                return await self.ask(verb, body)
            except Unanswered:
                if loop.time() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)

    async def delta(self, task: str, attempt: int, number: int, payload: bytes) -> None:
        """Passes a piece of an answer on; an empty one is the last."""
        subject = f"stream.{self.pool}.{self.worker}.{task}.{attempt}"
        await self.client.publish(subject, payload, headers={"Signalbox-Seq": str(number)})
