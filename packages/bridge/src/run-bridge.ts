import { Socket } from 'node:net'
import { UNSOLICITED } from '@ash-ai/shared'
import { Bridge } from './bridge.ts'
import { BridgeConnection } from './bridge-connection.ts'

const CLOSE_TIMEOUT_MS = 2_000

/** Serves the host until it is gone. `dir` is where the programs lie that the bridge starts. */
export async function runBridge(dir: string): Promise<void> {
  const {
    ASH_BRIDGE_FD,
    ASH_WORKSPACE_DIR,
    ASH_MODEL_SOCKET,
    ASH_EGRESS_SOCKET,
    ASH_TUNNEL_SOCKET,
    ASH_CLAUDE,
    HOME,
    ...env
  } = process.env
  if (
    !ASH_BRIDGE_FD ||
    !ASH_WORKSPACE_DIR ||
    !ASH_MODEL_SOCKET ||
    !ASH_EGRESS_SOCKET ||
    !ASH_CLAUDE ||
    !HOME
  ) {
    throw new Error(
      'the bridge needs ASH_BRIDGE_FD, ASH_WORKSPACE_DIR, ASH_MODEL_SOCKET, ASH_EGRESS_SOCKET, ASH_CLAUDE and HOME',
    )
  }

  const socket = new Socket({ fd: Number(ASH_BRIDGE_FD), readable: true, writable: true })
  const connection = new BridgeConnection(socket)
  const bridge = new Bridge(
    {
      workspaceDir: ASH_WORKSPACE_DIR,
      homeDir: HOME,
      claude: ASH_CLAUDE,
      modelSocket: ASH_MODEL_SOCKET,
      egressSocket: ASH_EGRESS_SOCKET,
      tunnelSocket: ASH_TUNNEL_SOCKET,
      kernelsDir: `${dir}/kernels`,
      ptyModule: `${dir}/pty/pty.node`,
      env: { ...(env as Record<string, string>), HOME, ASH_WORKSPACE_DIR },
    },
    connection,
  )

  const hostGone = connection.listen(async (command) => {
    await bridge.serve(command)
    if (command.cmd !== 'shutdown') return
    await connection.end()
    process.exit(0)
  })
  await connection.send({ ev: 'ready', id: UNSOLICITED })
  await hostGone
  setTimeout(() => process.exit(0), CLOSE_TIMEOUT_MS)
  await bridge.close()
  process.exit(0)
}
