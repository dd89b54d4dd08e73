import { connect, type NetConnectOpts, type Socket } from 'node:net'
import type { TunnelResult } from '@ash-ai/shared'

/** A port whose queue of connections is full answers nothing at all. */
const CONNECT_TIMEOUT_MS = 5_000
/** When one side has finished, the other may be silent for so long: whoever has gone away finishes in the same way. */
const FAREWELL_MS = 60_000
/** What `localhost` means: some programs wait for connections on one of the two only. */
const LOCALHOST = ['127.0.0.1', '::1']

/**
 * Connects a port in here with whoever waits outside for the token. From then on bytes pass in both directions;
 * either side may finish sending before the other, and the end of one is the end of both.
 */
export async function openTunnel(
  socketPath: string,
  { port, token }: { port: number; token: string },
): Promise<TunnelResult> {
  const inside = await connectToPort(port)
  if (!inside) return { connected: false }
  try {
    const outside = await connectTo({ path: socketPath })
    outside.write(`${token}\n`)
    join(inside, outside)
    join(outside, inside)
    return { connected: true }
  } catch (error) {
    inside.destroy()
    throw error
  }
}

async function connectToPort(port: number): Promise<Socket | undefined> {
  for (const host of LOCALHOST) {
    const socket = await connectTo({ host, port }).catch(() => undefined)
    if (socket) return socket
  }
}

function connectTo(to: NetConnectOpts): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ ...to, allowHalfOpen: true, noDelay: true })
    const timer = setTimeout(() => socket.destroy(new Error('no answer')), CONNECT_TIMEOUT_MS)
    const settle = () => {
      clearTimeout(timer)
      socket.off('error', fail)
    }
    const fail = (error: Error) => {
      settle()
      reject(error)
    }
    socket.once('error', fail)
    socket.once('connect', () => {
      settle()
      // Whoever has a use for it hears of what happens from here on.
      socket.on('error', () => {})
      resolve(socket)
    })
  })
}

function join(from: Socket, to: Socket): void {
  from.pipe(to)
  from.on('end', () => from.setTimeout(FAREWELL_MS, () => from.destroy()))
  from.on('error', () => to.destroy())
  // What was read before the end is still on its way.
  from.on('close', () => to.destroySoon())
}
