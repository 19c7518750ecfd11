//! PyPI `openai` and npm `openai`, as their users run them.

use signalbox_tests::python::{cache, run, with_packages};
use signalbox_tests::{Behaviour, World};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

const PYTHON: &str = r#"
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key=sys.argv[2], max_retries=0)
model = sys.argv[3]
assert model in [found.id for found in client.models.list()]
assert client.models.retrieve(model).id == model
messages = [{"role": "user", "content": "hi"}]
whole = client.chat.completions.create(model=model, messages=messages)
assert whole.choices[0].message.content == "one two three ", whole
assert whole.choices[0].finish_reason == "stop" and whole.usage.total_tokens > 0
text, usage, finish = "", None, None
for chunk in client.chat.completions.create(model=model, messages=messages, stream=True, stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
assert (text, finish) == ("one two three ", "stop") and usage.total_tokens > 0, (text, finish, usage)
for code, wrong in [
    (openai.NotFoundError, dict(model="nothing", messages=messages)),
    (openai.BadRequestError, dict(model=model, messages=[])),
]:
    try:
        client.chat.completions.create(**wrong)
        raise SystemExit("no error")
    except code as error:
        assert error.code and error.body["message"], error.body
try:
    openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="wrong", max_retries=0).models.list()
    raise SystemExit("no error")
except openai.AuthenticationError:
    pass
print("python ok")
"#;

const JAVASCRIPT: &str = r#"
import OpenAI from 'openai';
import assert from 'node:assert';
const [url, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const models = [];
for await (const found of client.models.list()) models.push(found.id);
assert(models.includes(model));
const messages = [{ role: 'user', content: 'hi' }];
const whole = await client.chat.completions.create({ model, messages });
assert.equal(whole.choices[0].message.content, 'one two three ');
let text = '', usage = null;
for await (const chunk of await client.chat.completions.create({ model, messages, stream: true, stream_options: { include_usage: true } })) {
  usage = chunk.usage ?? usage;
  text += chunk.choices[0]?.delta?.content ?? '';
}
assert.equal(text, 'one two three ');
assert(usage.total_tokens > 0);
await assert.rejects(client.chat.completions.create({ model: 'nothing', messages }), OpenAI.NotFoundError);
await assert.rejects(client.chat.completions.create({ model, messages: [] }), OpenAI.BadRequestError);
await assert.rejects(new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 }).models.list(), OpenAI.AuthenticationError);
console.log('javascript ok');
"#;

async fn node(script: &Path) -> Option<()> {
    if Command::new("npm").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await.is_err() {
        return None;
    }
    let home = script.parent().unwrap();
    if !home.join("ready").exists() {
        std::fs::create_dir_all(home).unwrap();
        std::fs::write(home.join("package.json"), br#"{"private": true, "type": "module"}"#).unwrap();
        run(Command::new("npm").args(["install", "--silent", "--no-audit", "--no-fund", "openai@>=5"]).current_dir(home)).await;
        std::fs::write(home.join("ready"), b"").unwrap();
    }
    std::fs::write(script, JAVASCRIPT).unwrap();
    Some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn official_clients_list_chat_and_stream() {
    let world = World::ready(1).await;
    let words = ["one ", "two ", "three "].map(str::to_owned).to_vec();
    let (_model, _, route) = world.model(Behaviour::Deltas(words, Duration::from_millis(10))).await;
    let said = run(Command::new(with_packages("test-openai-python-3", &["openai>=2,<4"]).await).arg("-c").arg(PYTHON).args([
        &world.admin.url,
        &world.admin.key,
        &route,
    ]))
    .await;
    assert_eq!(said.trim(), "python ok");
    let script = cache("test-openai-javascript").join(format!("client-{}.mjs", std::process::id()));
    match node(&script).await {
        Some(()) => {
            let said = run(Command::new("node").arg(&script).args([&world.admin.url, &world.admin.key, &route])).await;
            std::fs::remove_file(&script).unwrap();
            assert_eq!(said.trim(), "javascript ok");
        }
        None => eprintln!("no Node.js here: the JavaScript client is not tried"),
    }
    world.stop().await;
}
