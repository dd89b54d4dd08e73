import type { RequestContext, ToolResult } from './request-context.ts'
import type { Step, Usage } from './script.ts'

const NOTICE =
  '[offline model] No ANTHROPIC_API_KEY is set, so this is a scripted answer, not one from a real model.'
const DEMO_HINT = 'Ask for a sandbox demo to see a command run for real.'
const HINT = 'For real answers set ANTHROPIC_API_KEY and restart Ash.'

// It changes nothing that exists, and needs no more than a shell: a sandbox may lack whoami and hostname.
const DEMO_COMMAND = [
  "[ -e hello.md ] || echo 'Written by the offline model of Ash, inside this sandbox.' > hello.md",
  'echo "user: $(id -un 2>/dev/null || id -u)"',
  'echo "host: $(uname -n)"',
  'echo "folder: $PWD"',
  'ls | head -n 20',
].join('\n')

const ASKS_FOR_WORK = /\b(sandbox|demo)\b|\b(writ|creat|mak|sav)(e|es|ing)\b[\s\S]{0,200}\bfiles?\b/i

const MAX_QUOTED_PROMPT = 500
const MAX_QUOTED_RESULT = 2000
const MAX_LISTED_PROMPTS = 5
const MAX_LISTED_PROMPT = 60

// Nothing was computed, so nothing is to be billed.
const NO_USAGE: Partial<Usage> = { input_tokens: 0, output_tokens: 0 }

/**
 * The built-in model for use without a key: says so in every answer, and shows a sandbox at work when asked to. It
 * always returns a step, and quotes in raw blocks: what users type is never read as a script or a template.
 */
export function offlineScript(context: RequestContext): Step {
  if (wantsDemo(context)) return { ...DEMO, usage: NO_USAGE }
  return { content: [{ type: 'text', text: answer(context) }], usage: NO_USAGE }
}

const DEMO: Step = {
  text: `${NOTICE}\n\nTo show the sandbox at work I run a small command in it.`,
  tool: 'Bash',
  input: { command: DEMO_COMMAND, description: 'Show the sandbox at work' },
}

function wantsDemo({ step, tools, prompt }: RequestContext): boolean {
  return step === 0 && tools.includes('Bash') && ASKS_FOR_WORK.test(prompt)
}

function answer(context: RequestContext): string {
  if (context.aux) return NOTICE
  const result = context.toolResults.at(-1)
  if (result !== undefined) return paragraphs(NOTICE, quoteResult(result), HINT)
  return paragraphs(
    NOTICE,
    `You wrote: ${cut(context.prompt, MAX_QUOTED_PROMPT)}`,
    recall(context),
    DEMO_HINT,
    HINT,
  )
}

function quoteResult({ isError, text }: ToolResult): string {
  const outcome = isError ? 'The command did not succeed' : 'The command ran in your sandbox'
  return `${outcome}. Its output:\n\n${indent(cut(text, MAX_QUOTED_RESULT))}`
}

function recall({ prompts }: RequestContext): string {
  const earlier = prompts.slice(0, -1)
  if (earlier.length === 0) return 'This is the first message of our conversation.'
  const listed = earlier
    .slice(-MAX_LISTED_PROMPTS)
    .map((prompt) => `- ${cut(oneLine(prompt), MAX_LISTED_PROMPT)}`)
  const heading = `I remember ${earlier.length} earlier message${earlier.length === 1 ? '' : 's'} of yours`
  const extent = listed.length < earlier.length ? `, the last ${listed.length} being` : ''
  return `${heading}${extent}:\n${listed.join('\n')}`
}

const paragraphs = (...parts: string[]) => parts.join('\n\n')

const oneLine = (text: string) => text.replace(/\s+/g, ' ')

// Indented text is a code block in Markdown, and unlike a fence it cannot be closed by what it holds.
const indent = (text: string) => text.replace(/^/gm, '    ')

function cut(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${text.slice(0, maxLength).toWellFormed()}…`
}
