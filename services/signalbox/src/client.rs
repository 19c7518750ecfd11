//! The HTTP API as the command line uses it.

use crate::Error;
use futures_util::StreamExt;
use reqwest::{Client as Http, Method, RequestBuilder, Response};
use serde_json::Value;

/// A client of one service with one key.
#[derive(Clone)]
pub struct Client {
    http: Http,
    url: String,
    key: String,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvent {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its data.
    pub data: Value,
}

impl Client {
    /// A client for the service at `url`.
    pub fn new(url: &str, key: &str) -> Result<Self, Error> {
        Ok(Self { http: Http::builder().no_proxy().build()?, url: url.trim_end_matches('/').to_owned(), key: key.to_owned() })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key)
    }

    /// A query.
    pub async fn get(&self, path: &str) -> Result<Value, Error> {
        answer(self.request(Method::GET, path)).await
    }

    /// The text of a path.
    pub async fn text(&self, path: &str) -> Result<String, Error> {
        Ok(self.request(Method::GET, path).send().await?.text().await?)
    }

    /// A command.
    pub async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, Error> {
        self.send_once(method, path, body, None).await
    }

    /// A command that may be repeated with the same key.
    pub async fn send_once(&self, method: Method, path: &str, body: Option<Value>, key: Option<&str>) -> Result<Value, Error> {
        let mut request = self.request(method, path);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        answer(match body {
            Some(body) => request.json(&body),
            None => request,
        })
        .await
    }

    /// A command whose answer streams; `show` gets each event as it arrives.
    pub async fn stream(&self, path: &str, body: Value, show: &mut (dyn FnMut(&StreamEvent) + Send)) -> Result<(), Error> {
        let response = sent(self.request(Method::POST, path).json(&body)).await?;
        let response = checked(response).await?;
        let mut bytes = response.bytes_stream();
        let mut pending = Vec::new();
        while let Some(chunk) = bytes.next().await {
            pending.extend_from_slice(&chunk?);
            while let Some(end) = pending.windows(2).position(|pair| pair == b"\n\n") {
                let frame: Vec<u8> = pending.drain(..end + 2).collect();
                if let Some(event) = event(&String::from_utf8_lossy(&frame)) {
                    show(&event);
                }
            }
        }
        Ok(())
    }
}

fn event(frame: &str) -> Option<StreamEvent> {
    let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default();
    let data = serde_json::from_str(field("data")).ok()?;
    Some(StreamEvent { id: field("id").to_owned(), name: field("event").to_owned(), data })
}

async fn answer(request: RequestBuilder) -> Result<Value, Error> {
    Ok(checked(sent(request).await?).await?.json().await?)
}

/// Sends a request; what goes wrong is said in words of the command line.
async fn sent(request: RequestBuilder) -> Result<Response, Error> {
    request.send().await.map_err(|error| {
        let url = error.url().map(|url| url.origin().ascii_serialization()).unwrap_or_default();
        if error.is_connect() {
            format!("cannot reach {url}: is the service running? Its address is SIGNALBOX_URL or --url").into()
        } else if error.is_builder() {
            "SIGNALBOX_URL or --url is no address; it looks like http://127.0.0.1:8080".into()
        } else {
            error.into()
        }
    })
}

/// An answer that is no success, as one line with its code.
async fn checked(response: Response) -> Result<Response, Error> {
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let body: Value = response.json().await.unwrap_or_default();
    let field = body["field"].as_str().map(|field| format!(" [{field}]")).unwrap_or_default();
    match (body["code"].as_str(), body["detail"].as_str()) {
        (Some("unauthenticated"), _) => Err("unauthenticated: the API key in SIGNALBOX_KEY or --key is not valid here".into()),
        (Some(code), Some(detail)) => Err(format!("{code}{field}: {detail}").into()),
        _ => Err(format!("the service answered {status}").into()),
    }
}
