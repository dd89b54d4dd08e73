import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { isRelativePath } from '@ash-ai/shared'
import type { FolderEntry } from '../agents/agent-folder.ts'
import { BUILT_IN_TOOLS } from './built-in-tools.ts'
import type { Fault } from './fault.ts'
import type { ToolItem } from './item-schemas.ts'
import { readText } from './read-files.ts'
import type { SourceFile } from './source-file.ts'

/** The MCP server that has every script tool of an agent. */
const SERVER_NAME = 'tools'
/** In the agent's folder. */
const FOLDER = '.ash'

/** A first turn waits for the server, and the model sees its tools without searching for them. */
const AT_ONCE = { alwaysLoad: true }

/** A tool of the registry, as agents get it. */
export interface Tool {
  item: ToolItem
  file: SourceFile
  /** What is run, with its first line; undefined for a tool of an MCP server. */
  script?: string
}

/** What the agent SDK is told so that an agent has its tools, and only those. */
export interface ToolOptions {
  tools: string[]
  allowedTools: string[]
  mcpServers: Record<string, unknown>
  strictMcpConfig: true
}

/** What is wrong with a tool that has the right form; reads the script that it names. */
export async function resolveTool(
  dir: string,
  file: SourceFile,
  item: ToolItem,
): Promise<{ tool: Tool; faults: Fault[] }> {
  const faults = formFaults(file, item)
  if (item.script === undefined) return { tool: { item, file }, faults }
  const script = await readScript(dir, file, item.script)
  if (typeof script !== 'string') return { tool: { item, file }, faults: [...faults, script] }
  return { tool: { item, file, script }, faults }
}

function formFaults(file: SourceFile, { name, type, script, mcp }: ToolItem): Fault[] {
  const faults: Fault[] = []
  if (BUILT_IN_TOOLS.has(name))
    faults.push(file.fault(['name'], `"${name}" is a tool that every agent can have`))
  if (mcp && name === SERVER_NAME)
    faults.push(file.fault(['name'], `"${SERVER_NAME}" is where script tools are; choose another name`))
  if (script !== undefined && mcp) faults.push(file.fault(['mcp'], 'a tool has either `script` or `mcp`'))
  if (script === undefined && !mcp)
    faults.push(file.fault([], 'needs `script` or `mcp`: by its parameters alone a tool cannot be run'))
  if (type !== undefined && (type === 'mcp') !== (mcp !== undefined))
    faults.push(file.fault(['type'], `is "${type}", but the tool has \`${mcp ? 'mcp' : 'script'}\``))
  return faults
}

/** Several lines, or one that begins with `#!`, are the script itself; anything else names a file beside. */
async function readScript(dir: string, file: SourceFile, script: string): Promise<string | Fault> {
  if (script.includes('\n') || script.startsWith('#!')) return withInterpreter(script, '')
  if (!isRelativePath(script))
    return file.fault(['script'], 'must be a script of several lines, or the path of a file beside this one')
  const text = await readText(join(dir, dirname(file.path), script))
  if (typeof text === 'string') return withInterpreter(text, script)
  return file.fault(['script'], `${script} ${text.problem}`)
}

function withInterpreter(script: string, name: string): string {
  if (script.startsWith('#!')) return script
  return `${name.endsWith('.py') ? '#!/usr/bin/env python3' : '#!/bin/sh'}\n${script}`
}

/** `builtIn` are tools of the agent SDK. `agentDir` is where the agent's folder is inside; none means the working folder. */
export function toolOptions(builtIn: string[], tools: Tool[], agentDir: string | undefined): ToolOptions {
  const scripts = tools.filter(({ script }) => script !== undefined)
  const servers = tools.flatMap(({ item }) =>
    item.mcp ? [[item.name, { ...item.mcp, ...AT_ONCE }] as const] : [],
  )
  const path = `${FOLDER}/tools.mjs`
  const own = { command: 'node', args: [agentDir === undefined ? path : `${agentDir}/${path}`], ...AT_ONCE }
  return {
    tools: builtIn,
    allowedTools: [
      ...builtIn,
      ...scripts.map(({ item }) => `mcp__${SERVER_NAME}__${item.name}`),
      ...servers.map(([name]) => `mcp__${name}`),
    ],
    mcpServers: { ...(scripts.length > 0 && { [SERVER_NAME]: own }), ...Object.fromEntries(servers) },
    strictMcpConfig: true,
  }
}

/** The files that an agent with these tools has beside its own. */
export function toolFiles(tools: Tool[]): FolderEntry[] {
  const scripts = tools.flatMap(({ item, script }) => (script === undefined ? [] : [{ item, script }]))
  if (scripts.length === 0) return []
  const list = scripts.map(({ item }) => ({
    name: item.name,
    description: describe(item),
    inputSchema: item.parameters ?? { type: 'object' },
    timeoutMs: item.timeout,
  }))
  return [
    textEntry(`${FOLDER}/tools.mjs`, readFileSync(toolServer(), 'utf8')),
    textEntry(`${FOLDER}/tools.json`, `${JSON.stringify(list, null, 2)}\n`),
    ...scripts.map(({ item, script }) => ({
      ...textEntry(`${FOLDER}/tools/${item.name}`, script),
      isExecutable: true,
    })),
  ]
}

function describe({ name, description = name, examples = [] }: ToolItem): string {
  const lines = examples.map(
    (example) => `- ${typeof example === 'string' ? example : JSON.stringify(example)}`,
  )
  return lines.length === 0 ? description : `${description}\n\nExamples:\n${lines.join('\n')}`
}

export function textEntry(path: string, text: string): FolderEntry {
  return { path, isExecutable: false, content: [Buffer.from(text)] }
}

/** By the name of the package: this code may be part of a bundle, which is elsewhere. */
function toolServer(): string {
  const root = dirname(createRequire(import.meta.url).resolve('@ash-ai/server/package.json'))
  return join(root, 'src', 'registry', 'tool-server.mjs')
}
