# Each program is a target of its own:
#   docker build --target outbox-relay -t outbox-relay .
# The relay is compiled first, since a new service needs only its image. The other programs are compiled on top of that stage, so the
# standard library is compiled once. A builder without BuildKit runs all stages above its target: so outbox-relay is above them.
FROM golang:1.26 AS build-relay
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The context has no repository, so a version must be given: --build-arg VERSION=v0.1.0
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags="-s -X github.com/troupe-go/troupe/internal/version.release=$VERSION" -o /out/ \
    ./cmd/outbox-relay

# No shell, no root, nothing to write to. Every program knows "healthcheck", since there is nothing else to ask with.
FROM gcr.io/distroless/static-debian12:nonroot AS base
ENTRYPOINT ["/app"]

FROM base AS outbox-relay
COPY --from=build-relay /out/outbox-relay /app
CMD ["run"]

FROM build-relay AS build
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags="-s -X github.com/troupe-go/troupe/internal/version.release=$VERSION" -o /out/ \
    ./cmd/troupe ./cmd/demo-order ./cmd/demo-payment ./cmd/demo-inventory ./cmd/demo-shipping

# Its file is mounted, and named by TROUPE_AMBASSADOR_CONFIG.
FROM base AS ambassador
COPY --from=build /out/troupe /app
ENTRYPOINT ["/app", "ambassador"]

FROM base AS demo-order
COPY --from=build /out/demo-order /app

FROM base AS demo-payment
COPY --from=build /out/demo-payment /app

FROM base AS demo-inventory
COPY --from=build /out/demo-inventory /app

FROM base AS demo-shipping
COPY --from=build /out/demo-shipping /app
