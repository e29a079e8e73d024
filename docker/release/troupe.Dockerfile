# The image of a release, from the program that goreleaser has built: .goreleaser.yaml.
FROM gcr.io/distroless/static-debian12:nonroot
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/troupe /app
ENTRYPOINT ["/app"]
