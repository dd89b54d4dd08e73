// npm start: from a fresh clone to an agent that answers. Sets up, starts the server, deploys the example agent,
// talks to it, and stays in the foreground.
import { join } from 'node:path'
import { allowedEnv, findServer, serverUrl, showLog, startServer } from './lib/local-server.mjs'
import { isStopping, run, stopProcess } from './lib/processes.mjs'
import { bold, dim, reportFailure, step } from './lib/steps.mjs'
import { dataDir, root, UserError, workspaceNode } from './lib/workspace.mjs'
import { setup } from './setup.mjs'

const AGENT = 'hosted-agent'
const MESSAGE = 'Please write a file hello.md in your workspace that says hello, then tell me where you run.'
const DEPLOY_TIMEOUT_MS = 60_000
const CHAT_TIMEOUT_MS = 5 * 60_000

const url = serverUrl()
const keyFile = join(dataDir(), 'api-key')

async function main() {
  requireProvider()
  const isRunning = (await findServer(url)) !== undefined
  await setup()
  if (isRunning) console.log(`✓ Ash is already running at ${url}; using it`)
  const server = isRunning ? undefined : await startOwnServer()
  try {
    await introduceAgent()
    await printSummary()
  } catch (error) {
    if (server) await stopProcess(server)
    if (isStopping()) return
    throw error
  }
  if (server) announceExit(server)
}

/** Where nothing isolates, that has to be somebody's decision. */
function requireProvider() {
  if (process.platform === 'linux' || process.env.ASH_PROVIDER === 'process') return
  throw new UserError(
    'Sandboxes with isolation need Linux. To try Ash here without any isolation: ASH_PROVIDER=process npm start',
  )
}

async function startOwnServer() {
  let server
  await step('server', async () => {
    server = await startServer({ url, dataDir: dataDir() })
    return url
  })
  return server
}

async function introduceAgent() {
  await ash(['deploy', join('examples', AGENT)], DEPLOY_TIMEOUT_MS)
  await ash(['chat', AGENT, MESSAGE], CHAT_TIMEOUT_MS)
}

/** Runs the CLI the way the printed commands do, so that what works here works when pasted. */
async function ash(args, timeoutMs) {
  console.log(`\n${dim('$')} ${bold(`ash ${args.map(quote).join(' ')}`)}`)
  const cli = [join(root, 'packages', 'cli', 'bin', 'ash.mjs'), ...args]
  const env = { ...allowedEnv(/^(ASH_.*|TERM|COLORTERM|NO_COLOR|CI)$/), ...cliSettings() }
  const { code, isTimeout } = await run(workspaceNode(), cli, { timeoutMs, output: 'inherit', env })
  if (isTimeout) throw new UserError(`ash ${args[0]} took longer than ${timeoutMs / 1000} s.`)
  if (code !== 0) throw new UserError(`ash ${args[0]} failed (exit code ${code}).`)
}

/** What somebody in another terminal has to set because it was set here. */
function cliSettings() {
  return {
    ...(url === serverUrl({}) ? {} : { ASH_SERVER_URL: url }),
    ...(process.env.ASH_DATA_DIR ? { ASH_DATA_DIR: dataDir() } : {}),
  }
}

async function printSummary() {
  const { model, provider, isolation } = await findServer(url)
  const hasOwnKey = Boolean(process.env.ASH_API_KEY)
  const settings = Object.entries(cliSettings()).map(([name, value]) => `${name}=${quote(value)} `)
  const cli = `${settings.join('')}npm run -s ash --`
  const key = hasOwnKey ? '$ASH_API_KEY' : `$(cat ${quote(keyFile)})`
  console.log(`
${bold('Ash is up')}
  API       ${url}
  docs      ${url}/docs
  key       ${hasOwnKey ? 'the one in ASH_API_KEY' : keyFile}
  sandbox   ${provider} (isolation: ${isolation})
  model     ${model === 'offline' ? 'offline, scripted answers. For a real one: ANTHROPIC_API_KEY=… npm start' : 'real, through the Anthropic API'}

${bold('Try next')}, in another terminal in this folder:
  ${cli} chat ${AGENT} "hello"
  ${cli} session list
  curl -s -H "Authorization: Bearer ${key}" ${url}/api/agents
`)
}

function announceExit({ child, logPath }) {
  console.log(dim(`Log: ${logPath}. Ctrl-C stops Ash; sessions are kept.`))
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => console.log('Stopping Ash …'))
  child.once('exit', () => {
    if (!isStopping()) reportFailure(new UserError(`The server ended.\n${showLog(logPath)}`))
  })
}

const quote = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`)

main().catch(reportFailure)
