import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { AshError } from '@ash-ai/shared'
import { onTestFinished } from 'vitest'
import { BridgeClient, type Pulse } from '../bridge-client.ts'
import { tempDir } from './temp-dir.ts'

export interface BridgePair {
  client: BridgeClient
  /** The client's end. */
  stream: Socket
  bridge: Socket
}

/** A client and, at the other end of a real socket, whatever the test makes of a bridge. */
export async function connectBridge(pulse?: Pulse, outputMbPerSecond?: number): Promise<BridgePair> {
  const path = join(await tempDir(), 'bridge.sock')
  const server = createServer()
  server.listen(path)
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const stream = connect(path)
  const [bridge] = (await accepted) as [Socket]
  bridge.on('error', () => {})
  const client = new BridgeClient(stream, undefined, pulse, outputMbPerSecond)
  onTestFinished(() => {
    client.close(new AshError('sandbox_died', 'the test is over'))
    bridge.destroy()
    server.close()
  })
  return { client, bridge, stream }
}
