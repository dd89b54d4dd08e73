import type { IncomingMessage } from 'node:http'

/** The whole body, or undefined if it is longer than allowed. */
export async function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer | undefined> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    // Read on without keeping anything: a client that is still sending does not look for an answer.
    if (bytes > maxBytes) chunks.length = 0
    else chunks.push(chunk)
  }
  return bytes > maxBytes ? undefined : Buffer.concat(chunks)
}
