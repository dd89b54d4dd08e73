// Offers the script tools of an agent to the agent SDK: MCP, a JSON object a line, over stdin and stdout. Runs inside the
// sandbox, from the agent's folder. A script gets the arguments as JSON on its stdin; what it prints is the result.
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const MAX_LINE_CHARS = 16 * 1024 * 1024
const MAX_OUTPUT_BYTES = 1024 * 1024
const MAX_ERROR_CHARS = 10_000
const MAX_CALLS = 16

const beside = (name) => fileURLToPath(new URL(name, import.meta.url))
const tools = new Map(JSON.parse(readFileSync(beside('tools.json'), 'utf8')).map((tool) => [tool.name, tool]))
/** Running scripts by the request that wants them. */
const calls = new Map()

const METHODS = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: 'ash-tools', version: '1.0.0' },
  }),
  ping: () => ({}),
  'tools/list': () => ({
    tools: [...tools.values()].map(({ name, description, inputSchema }) => ({
      name,
      description,
      inputSchema,
    })),
  }),
  'tools/call': ({ name, arguments: input = {} }, id) => callTool(tools.get(name), input, id),
}

async function callTool(tool, input, id) {
  if (!tool) return failed('There is no such tool')
  if (calls.size >= MAX_CALLS) return failed(`More than ${MAX_CALLS} tools run at once`)
  const child = spawn(beside(`tools/${tool.name}`), [], { detached: true, stdio: 'pipe' })
  calls.set(id, child)
  try {
    return await finish(child, input, tool.timeoutMs)
  } catch (error) {
    return failed(`The script cannot be run: ${error.message}`)
  } finally {
    calls.delete(id)
  }
}

async function finish(child, input, timeoutMs) {
  const stdout = collect(child.stdout)
  const stderr = collect(child.stderr)
  let isLate = false
  const timer = setTimeout(() => {
    isLate = true
    killTree(child)
  }, timeoutMs)
  // A script need not read its input.
  child.stdin.on('error', () => {}).end(JSON.stringify(input))
  try {
    const { code, signal } = await ended(child)
    if (isLate) return failed(`Stopped after ${timeoutMs / 1000} s. ${tail(stdout())}`)
    if (code !== 0)
      return failed(`Ended with ${signal ?? `exit code ${code}`}. ${tail(`${stdout()}\n${stderr()}`)}`)
    return { content: [{ type: 'text', text: stdout() }] }
  } finally {
    clearTimeout(timer)
  }
}

function ended(child) {
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    // What it left running would keep its output open.
    child.once('exit', () => killTree(child))
    child.once('close', (code, signal) => resolve({ code, signal }))
  })
}

/** Reads on beyond the limit, so that nothing waits for a reader; the rest is left out. */
function collect(stream) {
  const chunks = []
  let bytes = 0
  stream.on('data', (chunk) => {
    if (bytes < MAX_OUTPUT_BYTES) chunks.push(chunk.subarray(0, MAX_OUTPUT_BYTES - bytes))
    bytes += chunk.length
  })
  return () => {
    const left = bytes - MAX_OUTPUT_BYTES
    return Buffer.concat(chunks).toString() + (left > 0 ? `\n… ${left} more bytes were left out` : '')
  }
}

function killTree({ pid }) {
  try {
    if (pid) process.kill(-pid, 'SIGKILL')
  } catch {
    // All of it is gone.
  }
}

const tail = (text) => text.trim().slice(-MAX_ERROR_CHARS)
const failed = (text) => ({ content: [{ type: 'text', text: text.trim() }], isError: true })
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`)

async function handle({ id, method, params = {} }) {
  if (method === 'notifications/cancelled') return killTree(calls.get(params.requestId) ?? {})
  if (id === undefined) return
  if (!Object.hasOwn(METHODS, method))
    return send({ id, error: { code: -32601, message: `No method ${method}` } })
  send({ id, result: await METHODS[method](params, id) })
}

function parse(line) {
  try {
    return JSON.parse(line)
  } catch {
    send({ id: null, error: { code: -32700, message: 'Not JSON' } })
  }
}

function stop() {
  for (const child of calls.values()) killTree(child)
  process.exit()
}

let rest = ''
process.stdin.setEncoding('utf8').on('data', (text) => {
  const lines = (rest + text).split('\n')
  rest = lines.pop() ?? ''
  if (rest.length > MAX_LINE_CHARS) stop()
  for (const message of lines.filter((line) => line.trim() !== '').map(parse)) {
    if (message)
      handle(message).catch((error) =>
        send({ id: message.id, error: { code: -32603, message: error.message } }),
      )
  }
})
process.stdin.on('end', stop)
process.stdout.on('error', stop)
