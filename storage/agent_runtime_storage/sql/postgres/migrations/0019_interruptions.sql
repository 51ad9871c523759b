-- Questions about calls whose end was not recorded, and the agent that an approval was given to.

-- name: allow_interrupted
ALTER TABLE questions
DROP CONSTRAINT questions_kind_check,
ADD CONSTRAINT questions_kind_check CHECK (kind IN (
    'single', 'multiple', 'text', 'approval', 'continue', 'interrupted'));

-- name: add_agent
ALTER TABLE approvals ADD COLUMN agent text NOT NULL DEFAULT '';
