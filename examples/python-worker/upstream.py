"""The handler for OpenAI-compatible upstreams: sends a task, streams what arrives, and says how certain it is of the rest."""

import asyncio
import json
from urllib.parse import urlsplit

import httpx

from link import Refused, Unanswered
from worker import Ending, Job, NotRedeemed, Unreadable

KINDS = {"chat.completions": "/chat/completions", "completions": "/completions", "embeddings": "/embeddings"}
"""The kinds that it takes, each with its path below the base URL."""
REFUSALS = {400, 404, 405, 409, 413, 415, 422}
"""Statuses by which an upstream refuses the request itself."""
SILENCE = 300.0
"""Seconds to the first byte, and between two."""
TITLES = {
    "upstream_unreachable": "The model could not be reached.",
    "upstream_rejected": "The model refused the request.",
    "upstream_auth_failed": "The model refused our credential.",
    "too_many_requests": "Too many requests.",
}


def origin(url: str) -> str:
    """Scheme, host and port, default ports left out."""
    parts = urlsplit(url)
    port = parts.port if parts.port != {"http": 80, "https": 443}.get(parts.scheme) else None
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def clean(text: str) -> str:
    """PostgreSQL cannot hold U+0000, spelled out or escaped in JSON."""
    return text.replace("\0", "\ufffd").replace("\\u0000", "\\ufffd")


def unsent(code: str, retryable: bool) -> Ending:
    """It is known before anything is sent that it cannot be."""
    return Ending("not_sent", code=code, retryable=retryable)


class Answer:
    """A streamed answer, put together again."""

    def __init__(self) -> None:
        self.text, self.refusal = "", ""
        self.calls: dict[int, dict] = {}
        self.finish_reason: str | None = None
        self.told: dict | None = None

    def take(self, chunk: dict) -> None:
        """Takes in one chunk."""
        if isinstance(chunk.get("usage"), dict):
            self.told = chunk["usage"]
        for choice in chunk.get("choices") or []:
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or {}
            self.text += delta.get("content") or ""
            self.refusal += delta.get("refusal") or ""
            for piece in delta.get("tool_calls") or []:
                call = self.calls.setdefault(piece.get("index", 0), {})
                # The first piece has id and name; the arguments come in fragments.
                for name, value in (piece.get("function") or {}).items():
                    known = call.setdefault("function", {})
                    known[name] = known[name] + value if isinstance(known.get(name), str) and isinstance(value, str) else value
                call.update({name: value for name, value in piece.items() if name not in ("index", "function") and value is not None})
            self.finish_reason = choice.get("finish_reason") or self.finish_reason

    @property
    def empty(self) -> bool:
        """Whether nothing has arrived."""
        return not (self.text or self.calls or self.refusal)

    def usage(self) -> dict:
        """What it cost: as the model said, else estimated at four bytes a token."""
        return usage_of(self.told) or {"prompt_tokens": 0, "completion_tokens": -(-len(self.text.encode()) // 4), "estimated": True}

    def whole(self) -> Ending:
        """The whole answer as one completion."""
        message: dict = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = [self.calls[index] for index in sorted(self.calls)]
            message["content"] = self.text or None
        if self.refusal:
            message["refusal"] = self.refusal
        cost = self.usage()
        total = cost["prompt_tokens"] + cost["completion_tokens"]
        usage = {"prompt_tokens": cost["prompt_tokens"], "completion_tokens": cost["completion_tokens"], "total_tokens": total}
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        result = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}, ensure_ascii=False)
        return Ending("succeeded", result=clean(result), usage=cost)

    def partial(self) -> str | None:
        """What has arrived."""
        return clean(self.text) if not self.empty else None

    def failed(self, code: str, detail: str) -> Ending:
        """Once an answer has begun the upstream has taken the task: that is a failure, not a doubt."""
        if self.empty:
            return Ending("unknown", code=code)
        return Ending("failed", code=code, result=self.partial(), usage=self.usage(), detail=detail)


def usage_of(told: dict | None) -> dict | None:
    """Usage as the protocol spells it."""
    if not isinstance(told, dict):
        return None
    return {"prompt_tokens": told.get("prompt_tokens") or 0, "completion_tokens": told.get("completion_tokens") or 0, "estimated": False}


async def send(job: Job) -> Ending:
    """Sends a task, unless it is cancelled: the request may then be on its way, and breaking it off does not call it back."""
    answer = Answer()
    sending = asyncio.create_task(deliver(job, answer))
    leaving = asyncio.create_task(job.cancelled.wait())
    await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()
    if sending.done():
        return sending.result()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    return Ending("cancelled", result=answer.partial(), usage=None if answer.empty else answer.usage())


async def deliver(job: Job, answer: Answer) -> Ending:
    """Validates, redeems, sends."""
    assignment = job.assignment
    try:
        payload = await job.payload()
    except (Refused, Unanswered):
        return Ending("released", code="payload_missing")
    try:
        body = json.loads(payload)
    except ValueError:
        body = None
    # What is wrong with a task is reported, and only who has redeemed may report: nothing is sent either way.
    try:
        await job.redeem()
    except NotRedeemed:
        return Ending("released", code="not_redeemed")
    if assignment["run_mode"] == "simulation":
        return Ending("succeeded", result=json.dumps({"simulated": True}))
    path, destination = KINDS.get(assignment["kind"]), assignment["destination"]
    if path is None:
        return unsent("kind_unsupported", False)
    if not isinstance(body, dict):
        return unsent("payload_invalid", False)
    if destination is None:
        # The deployment does not serve now, and may in a moment.
        return unsent("destination_missing", True)
    headers = {"accept": "text/event-stream, application/json", "idempotency-key": assignment["attempt_id"]}
    try:
        credential = job.credential()
    except Unreadable:
        return unsent("credential_sealed", False)
    if credential is not None:
        header, value, bound_to = credential
        if origin(destination["base_url"]) != bound_to:
            # The upstream has moved since the task was claimed: the next claim says where to.
            return unsent("credential_origin", True)
        headers[header] = value
    body["model"] = destination["model"]
    # What a caller asked for is passed on as it is.
    if assignment["streaming"] and "stream" not in body:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    timeout = httpx.Timeout(SILENCE, connect=5.0)
    # Redirects are not followed, and proxies of the environment not used: the request goes where it was meant to.
    async with httpx.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=False) as http:
        try:
            async with http.stream("POST", destination["base_url"] + path, json=body, headers=headers) as response:
                if not response.is_success:
                    return await refused(response)
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    return await follow(job, response, answer)
                whole = await response.aread()
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return unsent("upstream_unreachable", True)
        except httpx.TimeoutException:
            return Ending("unknown", code="upstream_timeout")
        except httpx.HTTPError:
            return Ending("unknown", code="upstream_disconnected")
    try:
        said = json.loads(whole)
    except ValueError:
        return Ending("unknown", code="upstream_protocol")
    return Ending("succeeded", result=clean(whole.decode()), usage=usage_of(said.get("usage")))


async def refused(response: httpx.Response) -> Ending:
    """What an answer that is no success means. A complaint about our credential stays with us: it may hold a piece of it."""
    status = response.status_code
    after = response.headers.get("retry-after", "").strip()
    retry_after = int(after) if after.isdigit() else None
    code = {401: "upstream_auth_failed", 403: "upstream_auth_failed", 429: "too_many_requests"}.get(status, "upstream_unreachable")
    if status in REFUSALS or 300 <= status < 400:
        code = "upstream_rejected"
    detail = TITLES[code]
    if status in REFUSALS:
        detail = f"the model refused the request with status {status}"
        try:
            said = json.loads(await response.aread())
            message = said["error"]["message"] if isinstance(said.get("error"), dict) else said["message"]
            detail = f"the model refused the request: {message[:500]}"
        except (ValueError, KeyError, TypeError, AttributeError, httpx.HTTPError):
            pass
    # A whole refusal says that nothing was done; a server's own failure does not, save one that says when to come back.
    certain = status < 500 or (status == 503 and retry_after is not None)
    retryable = code in ("upstream_unreachable", "too_many_requests")
    if not certain:
        return Ending("unknown", code=code)
    return Ending("rejected", code=code, upstream_status=status, retryable=retryable, retry_after_seconds=retry_after, detail=detail[:500])


async def follow(job: Job, response: httpx.Response, answer: Answer) -> Ending:
    """Follows a stream to its end mark, passing each piece on."""
    broke_off = "the model's answer broke off"
    try:
        async for line in response.aiter_lines():
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                return answer.whole()
            chunk = json.loads(data)
            if chunk.get("error") is not None:
                return answer.failed("upstream_disconnected", "the model broke off its answer with an error")
            answer.take(chunk)
            await job.delta(clean(data).encode())
    except httpx.TimeoutException:
        return answer.failed("upstream_timeout", "the model fell silent")
    except httpx.HTTPError:
        pass
    except ValueError:
        return answer.failed("upstream_protocol", "a piece of the model's answer is not JSON")
    # The model had said that it was done; only its end mark is missing.
    return answer.whole() if answer.finish_reason else answer.failed("upstream_disconnected", broke_off)
