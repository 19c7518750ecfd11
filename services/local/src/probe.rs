//! Real calls that tell whether something serves.

use reqwest::Client;
use serde_json::json;
use std::time::Duration;

/// Whether a path answers 2xx within two seconds.
pub(crate) async fn answers(http: &Client, url: &str) -> bool {
    let call = http.get(url).timeout(Duration::from_secs(2)).send().await;
    call.is_ok_and(|answer| answer.status().is_success())
}

/// One real completion of one token: a server can be up and yet not able to answer.
pub(crate) async fn completes(http: &Client, base: &str, model: &str) -> bool {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "ping"}], "max_tokens": 1});
    let call = http
        .post(format!("{base}/chat/completions"))
        .header("content-type", "application/json")
        .header("x-signalbox-probe", "1")
        .body(body.to_string())
        .timeout(Duration::from_secs(60))
        .send()
        .await;
    call.is_ok_and(|answer| answer.status().is_success())
}
