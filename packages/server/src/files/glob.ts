/** What a search has spent on comparing; beyond its maximum it ends, so that no pattern is too dear. */
export interface GlobBudget {
  stepsLeft: number
}

type Token = { text: string } | 'one' | 'name' | 'any' | 'folders' | 'folders-on'

/**
 * A pattern of `*` (any characters but `/`), `?` (one of them), `**` (any at all) and `**` before a `/` (any folders, or none).
 * Without any of these it is looked for anywhere. It is compared with the last name of a path, or, where it holds a
 * `/`, with the whole path.
 */
export function compileGlob(pattern: string): (path: string, budget: GlobBudget) => boolean {
  const subject = pattern.includes('/')
    ? (path: string) => path
    : (path: string) => path.slice(path.lastIndexOf('/') + 1)
  if (!/[*?]/.test(pattern)) return (path) => subject(path).includes(pattern)
  const tokens = tokenize(pattern)
  return (path, budget) => matchTokens(tokens, subject(path), budget)
}

function tokenize(pattern: string): Token[] {
  const tokens: Token[] = []
  for (const [part] of pattern.matchAll(/(?<![^/])\*\*\/|\*{2,}|[*?]|[^*?]/gu)) {
    if (part === '**/') tokens.push('folders', 'folders-on')
    else if (part === '?') tokens.push('one')
    else if (part === '*') tokens.push('name')
    else tokens.push(part.startsWith('*') ? 'any' : { text: part })
  }
  return tokens
}

/** Keeps every place of the pattern that could be reached so far: the time is pattern × path, whatever they hold. */
function matchTokens(tokens: Token[], path: string, budget: GlobBudget): boolean {
  budget.stepsLeft -= tokens.length * path.length
  if (budget.stepsLeft <= 0) return false
  let places = new Uint8Array(tokens.length + 1)
  let next = new Uint8Array(tokens.length + 1)
  enter(tokens, 0, places)
  for (const character of path) {
    next.fill(0)
    for (let place = 0; place < tokens.length; place++)
      if (places[place] === 1) advance(tokens, place, character, next)
    ;[places, next] = [next, places]
  }
  return places[tokens.length] === 1
}

/** Reaches a place, and those behind it that need no character. */
function enter(tokens: Token[], place: number, places: Uint8Array): void {
  // What follows it was reached with it.
  if (places[place] === 1) return
  places[place] = 1
  const token = tokens[place]
  if (token === 'name' || token === 'any' || token === 'folders') enter(tokens, place + 1, places)
  if (token === 'folders') enter(tokens, place + 2, places)
}

function advance(tokens: Token[], place: number, character: string, next: Uint8Array): void {
  const token = tokens[place]
  if (token === undefined || token === 'folders') return
  const isSlash = character === '/'
  if (typeof token === 'object') {
    if (token.text === character) enter(tokens, place + 1, next)
  } else if (token === 'one') {
    if (!isSlash) enter(tokens, place + 1, next)
  } else if (token === 'folders-on') {
    next[place] = 1
    if (isSlash) enter(tokens, place + 1, next)
  } else if (token === 'any' || !isSlash) {
    enter(tokens, place, next)
  }
}
