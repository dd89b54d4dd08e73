import type { Diagnosis, Finding } from './finding.ts'

const MARKS = { ok: '✓', warn: '!', fail: '✗' } as const

/** For people: a line for each finding, a line for each remedy, then what it comes to. */
export function formatDiagnosis({ findings, summary }: Diagnosis): string {
  const lines = [
    ...findings.flatMap(formatFinding),
    '',
    `Isolation: ${summary.isolation}. ${verdictOf(findings)}`,
  ]
  return `${lines.join('\n')}\n`
}

function formatFinding({ title, status, detail, fix }: Finding): string[] {
  const line = `${MARKS[status]} ${title}: ${toLine(detail)}`
  return fix === undefined ? [line] : [line, `    fix: ${toLine(fix)}`]
}

function verdictOf(findings: Finding[]): string {
  const count = (status: Finding['status']) => findings.filter((finding) => finding.status === status).length
  const [failed, warned] = [count('fail'), count('warn')]
  if (failed > 0) return `Sandboxes cannot run: mend what is marked ${MARKS.fail}, then ask again.`
  return warned === 0
    ? 'Sandboxes can run.'
    : `Sandboxes can run; what is marked ${MARKS.warn} could be better.`
}

/** Other programs' words are among these: no line breaks, nothing a terminal obeys. */
const toLine = (text: string) => text.replace(/\s*[\p{Cc}\p{Cf}]+\s*/gu, ' ').trim()
