# The binary on a small base. Build: docker build -t signalbox .
FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked && cp target/release/signalbox /signalbox

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home signalbox
COPY --from=build /signalbox /usr/local/bin/signalbox
USER signalbox
WORKDIR /home/signalbox
EXPOSE 8080
ENTRYPOINT ["signalbox"]
CMD ["serve", "--role", "all"]
