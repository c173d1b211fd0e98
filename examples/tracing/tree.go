package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// printTree prints each trace as a tree of its spans, in the order in which they began.
func printTree(out io.Writer, spans tracetest.SpanStubs) {
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	names := map[trace.SpanID]string{}
	below := map[trace.SpanID]tracetest.SpanStubs{}
	traces := map[trace.TraceID]bool{}
	for _, span := range spans {
		names[span.SpanContext.SpanID()] = span.Name
		below[span.Parent.SpanID()] = append(below[span.Parent.SpanID()], span)
		traces[span.SpanContext.TraceID()] = true
	}
	var print func(parent trace.SpanID, depth int)
	print = func(parent trace.SpanID, depth int) {
		for _, span := range below[parent] {
			fmt.Fprintln(out, strings.TrimRight(strings.Repeat("  ", depth)+describe(span, names), " "))
			print(span.SpanContext.SpanID(), depth+1)
		}
	}
	print(trace.SpanID{}, 0)
	fmt.Fprintf(out, "RESULT traces=%d spans=%d\n", len(traces), len(spans))
}

// describe returns the kind and name of a span, the system, the time that its message waited, its
// error, and its link unless that is its parent.
func describe(span tracetest.SpanStub, names map[trace.SpanID]string) string {
	parts := []string{fmt.Sprintf("%-9s%s", span.SpanKind, span.Name)}
	for _, attribute := range span.Attributes {
		switch attribute.Key {
		case "messaging.system":
			parts = append(parts, "on "+attribute.Value.AsString())
		case "postbox.message.wait":
			if span.SpanKind == trace.SpanKindConsumer {
				parts = append(parts, fmt.Sprintf("waited %.0f ms", attribute.Value.AsFloat64()*1000))
			}
		}
	}
	if span.Status.Code == codes.Error {
		parts = append(parts, "error: "+cmp.Or(span.Status.Description, "unknown"))
	}
	for _, link := range span.Links {
		if link.SpanContext.SpanID() != span.Parent.SpanID() {
			parts = append(parts, "link to "+names[link.SpanContext.SpanID()])
		}
	}
	return strings.Join(parts, ", ")
}
