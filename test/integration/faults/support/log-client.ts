import { text } from 'node:stream/consumers'
import { AshClient } from '@ash-ai/sdk'

// A client as a process of its own, which a test can kill. Reads what to follow as JSON from its standard input and
// writes each event as a line.

const { url, apiKey, sessionId, after } = JSON.parse(await text(process.stdin))
const client = new AshClient({ baseUrl: url, apiKey })
for await (const event of client.sessions.follow(sessionId, { after })) {
  process.stdout.write(`${JSON.stringify(event)}\n`)
}
