# The command line with its dashboard, and nothing else:
# docker build -t postbox . && docker run --rm postbox help
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -C cmd/postbox -buildvcs=false -ldflags '-s -w' -o /postbox .

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /
ENV ZONEINFO=/zoneinfo.zip
COPY --from=build /postbox /postbox
USER 65532:65532
ENTRYPOINT ["/postbox"]
