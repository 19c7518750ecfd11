"""Runs llama.cpp's OpenAI-compatible server on loopback until the process is ended."""

import argparse
import signal

arguments = argparse.ArgumentParser()
arguments.add_argument("--model", required=True)
arguments.add_argument("--port", type=int, required=True)
arguments.add_argument("--alias", required=True)
given = arguments.parse_args()

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = given.model
params.model_alias = {given.alias}
params.hostnames = ["127.0.0.1"]
params.port = given.port
params.n_ctx = 2048
params.n_parallel = 1
# One thread: on small machines more of them only wait for each other.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
# Small batches let a call be cancelled while its prompt is read.
params.n_batch = params.n_ubatch = 64
params.n_gpu_layers = 0
params.n_threads_http = 4
params.ui = False
params.cache_ram_mib = 0
# The default action ends the process at once; a Python handler would wait for the running answer.
for name in (signal.SIGTERM, signal.SIGINT):
    signal.signal(name, signal.SIG_DFL)

server = xllamacpp.Server(params)
print("ready", server.listening_address, flush=True)
signal.pause()
