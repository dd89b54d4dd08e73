// A bridge that was taken over. It behaves until a message tells it, step by step, what to write to its host:
// { text }, with {{id}} for the command and {{before}} for the query before it, { bytes } in base64,
// { repeat, times }, { waitFor } a file in the workspace, or { exit }.
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { Socket } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const socket = new Socket({ fd: Number(process.env.ASH_BRIDGE_FD), readable: true, writable: true })
socket.on('error', () => process.exit(0)).on('close', () => process.exit(0))
const send = (event) => write(`${JSON.stringify(event)}\n`)
let before = '0'

createInterface({ input: socket }).on('line', async (line) => {
  const { cmd, id, content } = JSON.parse(line)
  if (cmd === 'query') {
    for (const step of JSON.parse(content)) await perform(step, id)
    before = id
  } else {
    await send(cmd === 'ping' ? { ev: 'pong', id } : { ev: 'result', id, data: {} })
  }
})
await send({ ev: 'ready', id: 'session' })

async function perform({ text, bytes, repeat, times, waitFor, exit }, id) {
  const fill = (template) => template.replaceAll('{{id}}', id).replaceAll('{{before}}', before)
  if (text !== undefined) await write(fill(text))
  if (bytes !== undefined) await write(Buffer.from(bytes, 'base64'))
  const part = repeat === undefined ? '' : fill(repeat)
  for (let time = 0; time < (times ?? 0); time++) await write(part)
  while (waitFor !== undefined && !existsSync(waitFor)) await sleep(10)
  if (exit) process.exit(0)
}

async function write(data) {
  if (!socket.write(data)) await once(socket, 'drain')
}
