//! Deployments and jobs.

mod life;
mod list;

use signalbox_events::workload::Category;
use signalbox_local::runtime::{Parameter, Runtime, Runtimes};
use std::collections::BTreeMap;

/// Runtimes of small shell and Python programs.
fn runtimes() -> Runtimes {
    let runtime = |category, script: &str| Runtime {
        category,
        command: ["/bin/sh", "-c", script, "sh", "{port}", "{parameters.word}"].map(str::to_owned).to_vec(),
        environment: BTreeMap::from([("WORD".to_owned(), "{parameters.word}".to_owned())]),
        folder: None,
        health: "/health".to_owned(),
        start_seconds: 30,
        memory_bytes: None,
        parameters: BTreeMap::from([("word".to_owned(), Parameter { default: Some("none".to_owned()), values: vec![] })]),
    };
    let server = r#"exec python3 -c '
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": sys.argv[2]}, "finish_reason": "stop"}]}).encode()
        self.send_response(200); self.send_header("content-type", "application/json"); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
    do_GET = do_POST = answer
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
' "$1" "$2""#;
    Runtimes::from([
        ("server".to_owned(), runtime(Category::Deployment, server)),
        ("broken".to_owned(), runtime(Category::Deployment, "echo no model >&2; exit 3")),
        ("count".to_owned(), runtime(Category::Job, "echo counting $WORD; sleep 0.2")),
        ("fails".to_owned(), runtime(Category::Job, "echo it went wrong; exit 7")),
        ("endless".to_owned(), runtime(Category::Job, "sleep 1000")),
    ])
}
